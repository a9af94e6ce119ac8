"""Regenerates the stubs beside the .proto files, for grpcio and for grpclib. `--check` fails when they have drifted."""

from __future__ import annotations

import argparse
import filecmp
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).parent
PACKAGE = Path("seedrl_proto/v1")


def generate(out: Path) -> None:
    """Writes every stub under `out`; `protoc-gen-grpclib_python` must be beside this interpreter or on PATH."""
    plugin = shutil.which("protoc-gen-grpclib_python", path=str(Path(sys.executable).parent)) or shutil.which(
        "protoc-gen-grpclib_python"
    )
    include = resources.files("grpc_tools") / "_proto"
    code = protoc.main(
        [
            "protoc",
            f"-I{ROOT}",
            f"-I{include}",
            f"--plugin=protoc-gen-grpclib_python={plugin}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
            f"--grpclib_python_out={out}",
            *[str(path) for path in sorted((ROOT / PACKAGE).glob("*.proto"))],
        ]
    )
    if code:
        sys.exit(code)
    for path in (out / PACKAGE).glob("*_grpc.py"):
        if "class " not in path.read_text():
            path.unlink()  # a .proto without a service


def main() -> None:
    """Generates in place, or compares with what is committed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 on a difference")
    if not parser.parse_args().check:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as temporary:
        generate(Path(temporary))
        fresh = {path.name for path in (Path(temporary) / PACKAGE).iterdir()}
        stale = [
            name
            for name in sorted(
                fresh | {p.name for p in (ROOT / PACKAGE).iterdir() if "_pb2" in p.name or "_grpc" in p.name}
            )
            if name not in fresh
            or not (ROOT / PACKAGE / name).exists()
            or not filecmp.cmp(Path(temporary) / PACKAGE / name, ROOT / PACKAGE / name, shallow=False)
        ]
    if stale:
        sys.exit(f"stubs differ from the .proto files: {', '.join(stale)}; run `make proto`")


if __name__ == "__main__":
    main()
