"""Log lines as a collector gets them: JSON with the same keys, whoever wrote them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def lines_of(code: str) -> list[dict[str, Any]]:
    """What a process that configured its logs and ran `code` has written to a pipe."""
    program = f"import logging, threading\nfrom seedrl_core import logs\nlogs.configure('broker')\n{code}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_lines_of_ours_have_service_module_level_and_time() -> None:
    """One JSON object a line; what was bound goes with every later line, in other threads too."""
    first, second = lines_of(
        "log = logs.get('seedrl_broker.link')\n"
        "log.info('one', rows=2)\n"
        "logs.bind(run='pong')\n"
        "threading.Thread(target=lambda: log.warning('two', **logs.session_keys('host-0', bytes(range(16))))).start()"
    )
    assert first.pop("timestamp") < second.pop("timestamp")
    assert first == {"event": "one", "level": "info", "module": "link", "service": "broker", "rows": 2}
    assert second == {
        "event": "two",
        "level": "warning",
        "module": "link",
        "service": "broker",
        "run": "pong",
        "actor_id": "host-0",
        "session": "00010203",
    }


def test_warnings_of_libraries_have_the_same_form() -> None:
    """A line of the standard library's logging carries service and module, and its traceback as a field."""
    (line,) = lines_of(
        "logging.getLogger('some.library').info('not shown')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: logging.getLogger('some.library').exception('went %s', 'wrong')"
    )
    assert line.pop("timestamp")
    assert "ZeroDivisionError" in line.pop("exception")
    assert line == {"event": "went wrong", "level": "error", "module": "some.library", "service": "broker"}


def test_logs_that_cannot_be_written_end_no_process() -> None:
    """On a full disk lines are dropped, those of libraries too; the process goes on, and its exit code is its own."""
    program = (
        "import logging, sys\nfrom seedrl_core import logs\nlogs.configure('broker')\n"
        "logs.get('link').error('lost')\nlogging.getLogger('some.library').error('lost')\nprint('alive')\nsys.exit(3)"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, timeout=60)
    assert (done.stdout, done.returncode) == (b"alive\n", 3)
