"""What a person at a terminal sees: tables, plans, errors and questions.

Used by every command. Text from strangers must never reach the terminal unescaped.
"""
