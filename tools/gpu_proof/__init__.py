"""tools/gpu-proof: each part of the proof is a module of parts/ and runs in a process of its own (runner.py).

The standard library alone, Python 3.10 and later; what a part measures with torch it imports itself.
"""
