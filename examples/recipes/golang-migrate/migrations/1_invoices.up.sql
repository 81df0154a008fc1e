CREATE TABLE invoices (id bigint PRIMARY KEY, state text NOT NULL);
