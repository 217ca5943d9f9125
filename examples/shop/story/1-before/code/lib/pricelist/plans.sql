SELECT name, cents FROM plan ORDER BY cents
