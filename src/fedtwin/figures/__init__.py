"""Pictures. A kind of figure, in ``kinds``, owns the rows behind its picture and the drawing of them."""
