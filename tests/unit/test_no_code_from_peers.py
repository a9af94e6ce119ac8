"""Nothing is unpickled, evaluated or imported because a peer said so: there is no code here that could."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN_MODULES = {"cloudpickle", "code", "dill", "joblib", "jsonpickle", "marshal", "pickle", "runpy", "shelve"}
FORBIDDEN_CALLS = {"__import__", "compile", "eval", "exec", "literal_eval", "unsafe_load", "full_load", "load_module"}
# Names of modules in the settings of the process itself.
IMPORTERS = {
    "services/actor/seedrl_actor/environments.py",
    "services/learner/seedrl_learner/networks/user_torso.py",
}


def findings(source: str, may_import: bool) -> Iterator[str]:
    """What in a module turns data into code."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names):
                modules = [module or "", *(f"{module}.{alias.name}" for alias in names)]
            case _:
                modules = []
        yield from (module for module in modules if module.partition(".")[0] in FORBIDDEN_MODULES)
        if any(module.partition(".")[0] == "importlib" for module in modules) and not may_import:
            yield "importlib"
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) if name in FORBIDDEN_CALLS:
                    yield name
                case ast.Attribute(attr=name) if name in FORBIDDEN_CALLS - {"compile"}:
                    yield name
            yield from (word.arg for word in node.keywords if word.arg == "allow_pickle")


def test_no_module_unpickles_evaluates_or_imports_by_name() -> None:
    """Of all services; only two modules import by name, and the name is a setting of their own process."""
    files = sorted((ROOT / "services").rglob("*.py"))
    assert len(files) > 100
    found = {}
    for file in files:
        name = str(file.relative_to(ROOT))
        if told := sorted(set(findings(file.read_text(), name in IMPORTERS))):
            found[name] = told
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads as harmless",
        "import importlib\nimportlib.import_module(message.name)",
        "from importlib import import_module",
        "eval(message)",
        "np.load(file, allow_pickle=True)",
        "yaml.unsafe_load(text)",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    """Each way to run what a peer sent is seen."""
    assert list(findings(source, may_import=False))
