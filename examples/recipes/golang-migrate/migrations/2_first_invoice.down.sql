DELETE FROM invoices WHERE id = 1;
