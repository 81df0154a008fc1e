INSERT INTO invoices VALUES (1, 'new');
