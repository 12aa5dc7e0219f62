"""What a person at a terminal sees: tables, plans, errors and questions.

Used by every command. It must never let what strangers said reach the terminal unescaped.
"""
