package payload

import "strings"

var oneCell = strings.NewReplacer("|", "\\|", "\n", " ", "\r", "")

// Cell returns s as the content of one cell of a Markdown table.
func Cell(s string) string { return oneCell.Replace(Clip(s, 300)) }
