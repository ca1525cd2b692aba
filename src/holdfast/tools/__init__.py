"""What the model can do: each tool is a module and the `.md` of the same name that the model reads."""
