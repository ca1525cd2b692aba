"""The trials of `holdfast torture`, one module each."""
