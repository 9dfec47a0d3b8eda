"""What can go wrong when an X-ray is asked for, each as one clear sentence.

A card that cannot run a program is no error: that is a result (`Xray.refused`).
"""


class XrayError(RuntimeError):
    """The X-ray could not be made; the text says why and what to do."""


class XrayUnavailable(XrayError):  # noqa: N818  (a state of this machine, not a mistake)
    """X-rays cannot be made here, or not yet; the text names the command or says what is missing.

    Args:
        reason: one sentence for the reader.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class XrayTimeout(XrayError):  # noqa: N818
    """The compiler took longer than the caller allowed; the worker was stopped."""
