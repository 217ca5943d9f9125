//go:build !linux

package command

var thisMachine workerSide
