"""What all tests rest on."""

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, and what they start inherits that: tests that
# interrupt a command would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
