"""Reads the keyboard: key bindings, completion, history, pasted text and the picker."""
