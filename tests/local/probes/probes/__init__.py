"""Tasks of a local stack that is measured or broken; they keep a book of their tries."""
