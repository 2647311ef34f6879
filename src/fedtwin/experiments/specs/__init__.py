"""Specifications: which runs a comparison, a sweep or a figure is made of. Nothing here runs anything."""
