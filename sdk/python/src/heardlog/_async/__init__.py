"""The asynchronous client. tools/generate.py makes the synchronous one of it, heardlog._sync."""
