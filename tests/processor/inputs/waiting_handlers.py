"""A handler that cannot work while the table public.shut has a row."""

from onceflow import Event, Handlers, RetryIn, Tx

handlers = Handlers()


@handlers.on("invoice.paid")
def invoice_paid(event: Event, tx: Tx) -> None:
    if tx.fetch_one("SELECT 1 FROM public.shut LIMIT 1") is not None:
        raise RetryIn(1, "the shop is shut")
    tx.execute("INSERT INTO public.seen (event_id, pid) VALUES (%s, %s)", [event.id, len(event.raw)])
