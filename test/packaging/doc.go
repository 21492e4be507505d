// Package packaging tests what weir is delivered as: its image, the compose file, and the Makefile. There need not be a
// container engine: the image is laid out in a folder and run there.
package packaging
