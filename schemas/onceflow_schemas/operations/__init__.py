"""Operations: external effects with a durable id, as values and decisions; nothing here does I/O."""
