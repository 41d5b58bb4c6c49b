"""docs/API.md is what the code has, and every public name says what it is for."""

import ast
import importlib
import inspect

import pytest

from tests.docs import api_page
from tests.docs.blocks import blocks_of

PAGE = "docs/API.md"


def test_the_page_is_as_the_code_has_it():
    """``python -m tests.docs.api_page`` writes it."""
    assert api_page.PAGE.read_text(encoding="utf-8") == api_page.page()


@pytest.mark.parametrize("name", api_page.MODULES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(name)
    found = {public: getattr(module, public) for public in api_page.names_of(module)}
    said = [public for public, value in found.items() if inspect.isclass(value) or inspect.isroutine(value)]
    silent = [public for public in said if not found[public].__doc__]
    assert silent == []


def test_its_signatures_are_python():
    """A function or a class without its body."""
    for block in blocks_of(PAGE):
        if block.language == "python" and block.text.startswith("def "):
            ast.parse(f"{block.text.rstrip()}: ...", block.where)
