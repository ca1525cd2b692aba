"""Hand-written fakes of what tests cannot use for real."""
