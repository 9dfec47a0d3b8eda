"""How a report is shown: as text in a terminal, as a card in a notebook, as JUnit for machines.

Knows reports and nothing of how they came about: no JAX, no labs.
"""
