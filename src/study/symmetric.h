#pragma once
// Eigenvalues of symmetric matrices, for reports: small ones, in f64.

#include <span>
#include <vector>

namespace fovea::study {

struct Eigen {
  std::vector<double> values;   // the largest first
  std::vector<double> vectors;  // [n,n], row i belongs to values[i]
};

// Of a symmetric matrix [n,n], row-major, by Jacobi's rotations: to about 1e-15 of the largest.
// Source: Golub & Van Loan, Matrix Computations, 8.5.
Eigen symmetric_eigen(std::vector<double> matrix, int n);

// a [n,m] b [m,p], all row-major.
std::vector<double> product(std::span<const double> a, std::span<const double> b, int n, int m,
                            int p);
std::vector<double> transposed(std::span<const double> a, int n, int m);  // of [n,m]

// The singular values of a b^T for tokens a [N,n] and b [M,n], divided by sqrt(N M): what the rms
// of its entries is made of. At most n, the largest first.
std::vector<double> scores_spectrum(std::span<const double> a, std::span<const double> b, int n);

// How many of these singular values count: exp of the entropy of their shares. Source: Roy &
// Vetterli 2007.
double effective_rank(std::span<const double> singular);

}  // namespace fovea::study
