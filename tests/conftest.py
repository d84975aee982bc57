"""What all tests rest on."""

import signal

import pytest
from hypothesis import settings

# The same cases every time: what a suite finds must not depend on the day.
settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

pytest_plugins = ["tests.builders.findings", "tests.builders.tokenizers"]

# A shell that starts the tests in the background has them ignore Ctrl-C, and what they start inherits that: tests that
# interrupt a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many damaged inputs were tried."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    tried = sum(count for report in reports for name, count in report.user_properties if name == "fuzzed")
    if tried:
        terminalreporter.write_line(f"{tried:,} damaged inputs were tried")
