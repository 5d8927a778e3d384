"""Shows events: text, JSON lines, tables, graphs, and lines that update in place.

It contains no other logic.
"""
