"""The tools of the model: each is a module and the `.md` of the same name that the model reads."""
