-- Claims are kept in memory: one process owns the file, and a claim ends with it. delivery.claimed is 0 from here on, and what was under way is due again.
UPDATE delivery SET claimed = 0, due_ms = min(due_ms, (SELECT created_ms FROM event WHERE event.no = delivery.event_no))
  WHERE state = 0 AND claimed = 1;
DROP INDEX delivery_claimed;
-- What is due first of all is found by endpoint, as OldestPending is: an index of its own was two writes more for each delivery.
DROP INDEX delivery_oldest;
