// Package follow shows a task until its end: live on a terminal, or with a line for each event.
package follow
