# A cell put a model onto the GPU, and nobody came back: memory held, nothing moves.
# label: idle
# card: vram 85899345920 77309411328
model = bytearray(50 << 20)
