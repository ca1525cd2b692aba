from tests.cli.conftest import holdfast, home  # noqa: F401 - the command line, for these tests too
