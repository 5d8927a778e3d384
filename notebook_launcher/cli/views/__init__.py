"""What is shown: text, JSON lines, tables, graphs and the line that updates in place.

Nothing is decided here.
"""
