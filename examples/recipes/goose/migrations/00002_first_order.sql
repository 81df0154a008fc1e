-- +goose Up
INSERT INTO orders VALUES (1, 'new');

-- +goose Down
DELETE FROM orders WHERE id = 1;
