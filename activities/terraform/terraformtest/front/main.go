// Command front is nothing but what a worker starts of itself to run terraform.
package main

import "github.com/seed-62bf7108/unwind/activities/terraform"

func main() { terraform.Attend() }
