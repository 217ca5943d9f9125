// Package file writes and deletes files.
package file
