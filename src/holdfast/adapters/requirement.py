"""The error for a framework that is not installed, or not in a version that its adapter can use."""

from holdfast.installation import command_to_add


def missing(extra: str, reason: ImportError) -> ImportError:
    """Names the command that installs the framework."""
    return ImportError(f"the adapter for {extra} cannot be used ({reason}); run: {command_to_add(extra)}")
