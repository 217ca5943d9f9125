SELECT name, price_cents FROM plan ORDER BY price_cents
