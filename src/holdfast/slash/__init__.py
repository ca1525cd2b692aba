"""Commands that begin with a slash, for every face in which a person types: one registry, one behaviour."""
