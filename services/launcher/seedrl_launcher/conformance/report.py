"""The findings of a check, as a table for people and as one object for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from seedrl_launcher.conformance.rules import RULES, Findings, Verdict

_STYLES = {Verdict.KEPT: "green", Verdict.BROKEN: "bold red", Verdict.NOT_EXERCISED: "dim"}


def as_values(findings: Findings) -> dict[str, Any]:
    """Each rule with its verdict, and how many have which."""
    return {
        **{verdict.name.lower(): len(findings.rules(verdict)) for verdict in Verdict},
        "rules": {
            rule: {
                "text": text,
                "verdict": str(findings.verdict(rule)),
                "times_kept": findings.times(rule)[0],
                "times_broken": findings.times(rule)[1],
                "breaches": [asdict(breach) for breach in findings.breaches(rule)],
            }
            for rule, text in RULES.items()
        },
    }


def as_table(findings: Findings) -> RenderableType:
    """One row a rule; under a broken one, what was expected and what was got instead."""
    table = Table(box=None, pad_edge=False)
    table.add_column("rule", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("docs/protocol.md", overflow="fold")
    for rule, text in RULES.items():
        verdict = findings.verdict(rule)
        lines = [escape(text.replace("`", ""))]
        for breach in findings.breaches(rule):
            lines.append(f"[red]expected {escape(breach.expected)}; got {escape(breach.got)}[/]")
        unshown = findings.times(rule)[1] - len(findings.breaches(rule))
        lines += [f"[red]and {unshown} times more[/]"] if unshown else []
        table.add_row(rule, f"[{_STYLES[verdict]}]{verdict}[/]", "\n".join(lines))
    counts = ", ".join(f"{len(findings.rules(verdict))} {verdict}" for verdict in Verdict)
    return Group(table, f"\n{counts}")
