"""Zygotes are made once, contexts for each test."""

import sys

import pytest
from driver import Zygote

# Nothing but sources belongs below guest/contexts: it is embedded into the program.
sys.dont_write_bytecode = True

WARM = """
import matplotlib.pyplot
import numpy
import pandas
import plotly.graph_objects
"""


@pytest.fixture(scope="session")
def zygote(tmp_path_factory):
    """One with the libraries warm."""
    made = Zygote(tmp_path_factory.mktemp("home"), WARM)
    yield made
    assert made.close() == 0


@pytest.fixture(scope="session")
def cold_zygote(tmp_path_factory):
    """One with nothing imported beyond IPython."""
    made = Zygote(tmp_path_factory.mktemp("home"))
    yield made
    assert made.close() == 0


@pytest.fixture
def context(zygote, tmp_path):
    """A context of the warm zygote, in a folder of its own."""
    made = zygote.context(cwd=tmp_path)
    yield made
    made.close()
    zygote.status_of(made.pid)
