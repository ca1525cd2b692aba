"""Numbers of things, as people say them."""


def counted(number: int, thing: str) -> str:
    """`1 message`, `2,000 messages`. For things whose plural ends in a plain s."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
