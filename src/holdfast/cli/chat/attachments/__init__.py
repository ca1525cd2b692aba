"""Attaches files, directories, images and the output of commands to a message."""
