"""Operations: asking for them, and carrying them out."""
