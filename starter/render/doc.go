// Package render prints tasks for people: states, gates, parks, plans, lists and reports.
package render
