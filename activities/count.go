package activities

import "fmt"

// CountOf says how many there are of something: "1 row", "2 rows".
func CountOf[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
