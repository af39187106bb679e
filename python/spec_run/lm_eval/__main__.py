"""lm-eval's own command line, with this model known."""

from lm_eval.__main__ import cli_evaluate

from . import SpecRunLM  # noqa: F401

cli_evaluate()
