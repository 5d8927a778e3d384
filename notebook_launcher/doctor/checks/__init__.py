"""What ``doctor`` looks at: this machine and the login node, the queue, the software, a compute node, a course."""
