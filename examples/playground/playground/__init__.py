"""Tasks to play with; a folder like this one is what a user's own app bundles."""
