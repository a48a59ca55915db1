"""The synchronous client."""

# Generated from heardlog/_async by tools/generate.py; do not edit.
