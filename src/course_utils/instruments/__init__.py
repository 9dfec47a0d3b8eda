"""Instruments: one module per question asked of JAX, each with one small frozen result.

An instrument knows JAX and nothing of labs, checks or reports. In order of trust for a grade:
`compiles`, `launches`, `syncs`, `memory`, `parity`, `timing`. Everything that touches JAX's private
parts stands in `_private`.
"""
